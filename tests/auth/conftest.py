from tests.support.databases import database_url, engine, postgresql, storage, template

__all__ = ["database_url", "engine", "postgresql", "storage", "template"]
