"""`python -m hetsched.front PARENT_PID LINE_FD BATON_FD LISTENING_FD…`: one front end. Started by the deciding process only."""

import sys

from hetsched.front.main import main

sys.exit(main(sys.argv[1:]))
