"""What would happen if …: asked of a copy of the real engine, never of the engine itself, and never guessed.

`image.take` is the only thing that touches the scheduler, and it only reads. Everything else works on copies made from the image, so it
may run in another thread: `plan` (what submitting this would do), `advise` (when a waiting task will start, and what would help it).
"""

from hetsched.scheduler.rehearse.advise import Advice, Share, advise
from hetsched.scheduler.rehearse.image import Image, load_copy, open_copy, take
from hetsched.scheduler.rehearse.plan import plan

__all__ = ["Advice", "Image", "Share", "advise", "load_copy", "open_copy", "plan", "take"]
