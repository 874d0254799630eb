//! Requests of the meta commands.
//!
//! Every flag that changes the execution is a field. The tokens themselves are kept too, since a
//! reply repeats them in the order of the request.

use crate::scan::Words;
use crate::{Exptime, Key};

/// Flag tokens of a meta command, in the order of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlagTokens<'a>(Words<'a>);

impl<'a> FlagTokens<'a> {
    #[inline]
    pub(crate) fn new(words: Words<'a>) -> Self {
        FlagTokens(words)
    }

    /// Iterates over the tokens, each with at least one byte: the flag, then its argument.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.0
    }

    /// Returns true if there are none, so that a reply is the bare code.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.rest().is_empty()
    }
}

/// `mg KEY FLAGS*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaGet<'a> {
    /// Key of the item.
    pub key: Key<'a>,
    /// Flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to a miss.
    pub quiet: bool,
    /// `v`: the reply holds the value.
    pub value: bool,
    /// `u`: the access does not count as one.
    pub no_bump: bool,
    /// True if `h`, `l` or `t` is among the flags, so that the reply needs more than size and
    /// flags.
    pub wants_access_facts: bool,
    /// `c`: the reply holds the CAS.
    pub cas: bool,
    /// `C`: the reply holds no value if the item still has this CAS.
    pub compare: Option<u64>,
    /// `E`: the CAS of an item that `N` creates.
    pub explicit_cas: Option<u64>,
    /// `T`: new expiry.
    pub touch: Option<Exptime>,
    /// `N`: on a miss, create an empty item with this expiry.
    pub vivify: Option<Exptime>,
    /// `R`: if the item has less than this to live, one client wins the right to renew it.
    pub recache: Option<Exptime>,
}

/// Mode of `ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaStoreMode {
    /// `MS`, or no `M`.
    #[default]
    Set,
    /// `ME`.
    Add,
    /// `MR`.
    Replace,
    /// `MA`.
    Append,
    /// `MP`.
    Prepend,
}

/// `ms KEY LENGTH FLAGS*` with its data block, which has arrived whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// Key of the item.
    pub key: Key<'a>,
    /// Value to store.
    pub data: &'a [u8],
    /// Flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to success.
    pub quiet: bool,
    /// `M`: the mode.
    pub mode: MetaStoreMode,
    /// `F`: client flags, 32 bits.
    pub flags: u32,
    /// `T`: expiry; never if absent.
    pub exptime: Exptime,
    /// `C`: store only over the version with this CAS.
    pub compare: Option<u64>,
    /// `E`: CAS of the new item.
    pub explicit_cas: Option<u64>,
    /// `I`: if `C` is older than the item's CAS, store all the same and mark it stale.
    pub invalidate: bool,
    /// `N`: append and prepend create a missing item with this expiry.
    pub vivify: Option<Exptime>,
}

/// `md KEY FLAGS*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaDelete<'a> {
    /// Key of the item.
    pub key: Key<'a>,
    /// Flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to success.
    pub quiet: bool,
    /// `C`: delete only the version with this CAS.
    pub compare: Option<u64>,
    /// `E`: CAS of an item that stays behind.
    pub explicit_cas: Option<u64>,
    /// `I`: mark the item stale instead.
    pub invalidate: bool,
    /// `T`: with `I` or `x`, expiry of the item that stays behind.
    pub touch: Option<Exptime>,
    /// `x`: remove the value and keep an empty item.
    pub remove_value: bool,
}

/// `ma KEY FLAGS*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaArithmetic<'a> {
    /// Key of the counter.
    pub key: Key<'a>,
    /// Flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to success.
    pub quiet: bool,
    /// `v`: the reply holds the new number.
    pub value: bool,
    /// `MD`: count down instead of up.
    pub down: bool,
    /// `D`: delta; 1 if absent.
    pub delta: u64,
    /// `C`: count only on the version with this CAS.
    pub compare: Option<u64>,
    /// `E`: CAS of the new version.
    pub explicit_cas: Option<u64>,
    /// `T`: new expiry.
    pub touch: Option<Exptime>,
    /// `N`: create a missing counter with this expiry.
    pub vivify: Option<Exptime>,
    /// `J`: initial value of a created counter; 0 if absent.
    pub initial: u64,
}

/// `me KEY [b]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaDebug<'a> {
    /// Key of the item.
    pub key: Key<'a>,
}
