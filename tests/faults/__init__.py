"""The fault programme: crashes, damage, full disks, rivals, links, signals and fuzz against all that is stored.

    make faults                                    all of it, about an hour; goes on where it was ended
    python -m tests.faults --share 0.02            a part of it
    python -m tests.faults --only crash:mala       one cell of the table

`work.py` has what is attacked, `attacks.py` how, `__main__.py` the loop and the table. A loss is a run that no command
goes on with, though none of its files was harmed; a wrong result is one that differs from that of an undisturbed run
without a word.
"""
