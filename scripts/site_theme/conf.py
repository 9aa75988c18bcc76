"""The settings of Sphinx for `make site`. The site uses the fonts of the system and loads nothing from outside."""

from pathlib import Path

project = "Millstream"
copyright = "the authors of Millstream"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["files"]

# Anchors of headings as code hosts make them; quotes and dashes stay as they are written.
myst_heading_anchors = 6
smartquotes = False
# A block that is no whole program (`…`), and the word list of a page's language, are shown without colours.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "Millstream"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#17607a", "color-brand-content": "#17607a"},
    "dark_css_variables": {"color-brand-primary": "#6cc3de", "color-brand-content": "#6cc3de"},
}
