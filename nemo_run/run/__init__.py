"""
Launch jobs, follow them, and find them again: experiments and what they stand on.

``experiment`` and ``job`` hold what users call; ``_dag`` is pure; ``_store`` is
the one writer of ``$NEMORUN_HOME``; ``_console`` is the one module that draws;
``backends`` speak to executors, each through its public verbs only.
"""
