"""What ``tools/compare_peers.py`` is made of.

* ``cases``: which operators, phases and sizes are measured.
* ``subjects``: inputs and fp64 oracle of each operator, our function and torch's.
* ``liger``: Liger-Kernel's functions, if it is installed.
* ``binding``: an implementation bound to rotating input sets; direct launches by Triton's JIT.
* ``accuracy``: largest error in units in the last place.
* ``measure``: device time of graph replays, wall time of calls.
* ``request``: what a measuring process is asked for.
* ``child``: the measuring process.
* ``results``: the result file, medians over processes.
* ``table``: the Markdown table of a result file.
"""
