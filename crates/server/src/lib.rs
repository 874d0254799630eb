//! The server: connections, tenants, configuration and the admin listener.
