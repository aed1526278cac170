#!/bin/sh
# Runs `python -m ARGUMENTS` with the Python that Ray itself runs with on this machine, which need not be on the PATH:
# this script's parent is a process of Ray's, whose memory map names the library that it was loaded from.
set -eu
# TUNEBOOK_PYTHON (`tunebook submit --env TUNEBOOK_PYTHON=...`) overrides it; where there is neither, `python3` is used.
prefix=$(sed -n 's#^[^/]*\(/.*\)/lib[64]*/python[0-9.]*/[^/]*/ray/_raylet\.so$#\1#p' "/proc/$PPID/maps" | head -n 1)
python=${TUNEBOOK_PYTHON:-$prefix/bin/python}
[ -x "$python" ] || python=python3
exec "$python" -m "$@"
