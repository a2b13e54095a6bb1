"""One browser for all pages."""

import pytest
from browser import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser"), 1280, 900) as browser:
        yield browser
