//! What a client can ask for, in the meta commands.
//!
//! Every flag that changes what is done is a field; the tokens themselves stay at hand because a
//! reply repeats them in the order of the request.

use crate::parse::Words;
use crate::{Exptime, Key};

/// The flag tokens of a meta command, as they stood on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlagTokens<'a>(Words<'a>);

impl<'a> FlagTokens<'a> {
    #[inline]
    pub(crate) fn new(words: Words<'a>) -> Self {
        FlagTokens(words)
    }

    /// The tokens, each with at least one byte: the flag, then its argument.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.0
    }

    /// Whether there are none, so that a reply is the bare code.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.rest().is_empty()
    }
}

/// `mg KEY FLAGS*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaGet<'a> {
    /// Which item.
    pub key: Key<'a>,
    /// The flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to a miss.
    pub quiet: bool,
    /// `v`: the value is wanted.
    pub value: bool,
    /// `u`: the access must not count as one.
    pub no_bump: bool,
    /// `h`, `l` or `t` stands among the flags, so that the reply needs more than size and flags.
    pub wants_access_facts: bool,
    /// `c`: the CAS is wanted.
    pub cas: bool,
    /// `C`: the value is not wanted if the item has this CAS still.
    pub compare: Option<u64>,
    /// `E`: the CAS of an item that `N` creates.
    pub explicit_cas: Option<u64>,
    /// `T`: the new expiry.
    pub touch: Option<Exptime>,
    /// `N`: on a miss, create an empty item with this expiry.
    pub vivify: Option<Exptime>,
    /// `R`: if the item has less than this to live, one client wins the right to renew it.
    pub recache: Option<Exptime>,
}

/// How `ms` stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaStoreMode {
    /// `MS`, and without `M`.
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
    /// Which item.
    pub key: Key<'a>,
    /// The value.
    pub data: &'a [u8],
    /// The flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to success.
    pub quiet: bool,
    /// `M`.
    pub mode: MetaStoreMode,
    /// `F`: the client's own 32 bits.
    pub flags: u32,
    /// `T`: when it expires; never without.
    pub exptime: Exptime,
    /// `C`: store only over this version.
    pub compare: Option<u64>,
    /// `E`: the new item's CAS.
    pub explicit_cas: Option<u64>,
    /// `I`: where `C` is older than what is there, store all the same and mark it stale.
    pub invalidate: bool,
    /// `N`: append and prepend create a missing item with this expiry.
    pub vivify: Option<Exptime>,
}

/// `md KEY FLAGS*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaDelete<'a> {
    /// Which item.
    pub key: Key<'a>,
    /// The flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to success.
    pub quiet: bool,
    /// `C`: only this version.
    pub compare: Option<u64>,
    /// `E`: the CAS of what stays behind.
    pub explicit_cas: Option<u64>,
    /// `I`: mark the item stale instead.
    pub invalidate: bool,
    /// `T`: with `I` or `x`, the expiry of what stays behind.
    pub touch: Option<Exptime>,
    /// `x`: remove the value and keep an empty item.
    pub remove_value: bool,
}

/// `ma KEY FLAGS*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaArithmetic<'a> {
    /// Which counter.
    pub key: Key<'a>,
    /// The flags in their order.
    pub tokens: FlagTokens<'a>,
    /// `q`: no reply to success.
    pub quiet: bool,
    /// `v`: the new number is wanted.
    pub value: bool,
    /// `MD`: down instead of up.
    pub down: bool,
    /// `D`: by how much; 1 without.
    pub delta: u64,
    /// `C`: only this version.
    pub compare: Option<u64>,
    /// `E`: the new version's CAS.
    pub explicit_cas: Option<u64>,
    /// `T`: the new expiry.
    pub touch: Option<Exptime>,
    /// `N`: create a missing counter with this expiry.
    pub vivify: Option<Exptime>,
    /// `J`: what a created counter starts with; 0 without.
    pub initial: u64,
}

/// `me KEY [b]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaDebug<'a> {
    /// Which item.
    pub key: Key<'a>,
}
