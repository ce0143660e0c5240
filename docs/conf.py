"""How Sphinx makes the site: `uv run nox -s docs`."""

project = "nnet3 in Python"
author = "The nnet3 in Python developers"
html_title = "nnet3 in Python"
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
exclude_patterns = ["reference/_*"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "imported-members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are described by their class

suppress_warnings = ["ref.python"]  # a name such as RunError that several packages have
