from tests.support.databases import database_url, postgresql, template

__all__ = ["database_url", "postgresql", "template"]
