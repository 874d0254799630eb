//! The memcached text and meta protocol: bytes in, commands out, no I/O.
