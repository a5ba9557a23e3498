"""Where promtool is, which comes with Debian's package prometheus."""

import shutil

PROMTOOL = shutil.which("promtool")
