//! The lead: what is to be moved, what has been, and what is to be deleted in the end. No object byte passes here.
