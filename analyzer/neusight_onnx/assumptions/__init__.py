"""What a report says that it assumes, and what it warns of.

``run`` is about what was asked for (GPU, runtime, release, batch), ``formats`` about number formats, ``execution``
about how kernels are executed, ``totals`` about what follows from the sums. Each function yields sentences, none where
there is nothing to say.
"""
