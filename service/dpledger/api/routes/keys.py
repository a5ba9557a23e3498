"""The public keys with which receipts are verified offline."""

from fastapi import APIRouter

from dpledger.api.deps import ServicesDependency
from dpledger.api.http.routing import GuardedRoute, public
from dpledger.api.schemas.responses import KeySetAnswer

__all__ = ["router"]

router = APIRouter(tags=["receipts"], route_class=GuardedRoute)


@router.get("/.well-known/dpledger-keys.json", summary="The public keys of receipts")
@public()
async def get_keys(services: ServicesDependency) -> KeySetAnswer:
    """Answer the key in use and those it replaced, as a JSON Web Key Set."""
    return KeySetAnswer(**services.signer.key_set())
