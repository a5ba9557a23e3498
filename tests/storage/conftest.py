from tests.support.databases import database_url, engine, engine_kind, postgresql, storage, template

__all__ = ["database_url", "engine", "engine_kind", "postgresql", "storage", "template"]
