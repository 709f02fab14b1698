"""
Kubernetes, as far as nemo_run needs it, and nothing of nemo_run's own nouns.

Pure: ``resources``, ``names``, ``layout``, ``manifests``, ``answers``,
``channels``, ``demux`` and their like take values and return values; they
import nothing but the standard library and ``exceptions``. ``waiting`` adds a
clock.

I/O: ``api`` is the one door to the cluster, on ``wire`` (requests) and ``auth``
(credentials; it alone imports the ``kubernetes`` package); ``exec``,
``transfer``, ``mover`` and ``logs`` go through it.

No module here may know an executor, an experiment or a job.
"""
