"""The public keys with which receipts are verified offline."""

from fastapi import APIRouter

from dpledger.api.answers import KeySetAnswer
from dpledger.api.keyed import HouseOf
from dpledger.api.routing import GuardedRoute, public

__all__ = ["router"]

router = APIRouter(tags=["receipts"], route_class=GuardedRoute)


@router.get("/.well-known/dpledger-keys.json", summary="The public keys of receipts")
@public()
async def get_keys(house: HouseOf) -> KeySetAnswer:
    """Answer the key in use and those it replaced, as a JSON Web Key Set."""
    return KeySetAnswer(**house.signer.key_set())
