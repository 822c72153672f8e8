"""The exception of the package."""

from __future__ import annotations


class Error(Exception):
    """Reports what went wrong in a server, a cache or the network, as a whole sentence.

    Arguments that are wrong without asking a server raise ValueError or TypeError instead.
    """

    @property
    def kind(self) -> str:
        """One of these words; "" for an error that came from a DataLoader's worker as text.

        =============  ===========================================================================
        "closed"       the connection was lost, or the server ended the stream
        "io"           a file, a folder or an address cannot be used
        "limit"        the server has no room, or a number is too large
        "denied"       the server refuses this client: certificate, token, peer
        "not found"    no such cache, chain, snapshot or plan
        "usage"        parameters that no stream can have
        "unsupported"  a newer format, or parameters that this server cannot serve
        "corrupt"      stored bytes are damaged
        "protocol"     the peer does not follow the protocol
        "data"         an input cannot be used
        "format"       text that cannot be parsed
        "memory"       not enough memory
        "exists"       what should be made is there already
        "cancelled"    the call was interrupted
        =============  ===========================================================================
        """
        return str(self.args[0]) if len(self.args) == 2 else ""

    def __str__(self) -> str:
        return str(self.args[-1]) if self.args else ""
