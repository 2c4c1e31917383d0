"""Laws of a decode pool: :class:`DecodeStation` in, :class:`DecodeLaw` out."""

from pdalloc.queueing.decode.inverse import greatest_rate
from pdalloc.queueing.decode.law import DecodeLaw
from pdalloc.queueing.decode.station import DecodeStation
from pdalloc.queueing.decode.work import DecodeWork, decode_work

__all__ = ["DecodeLaw", "DecodeStation", "DecodeWork", "decode_work", "greatest_rate"]
