"""Settings of a recipe whose numbers have bounds."""

from typing import ClassVar

from contrastive_encoders.core.config_schema import check


class Bounded:
    """A dataclass of settings; the bounds of a number stand beside its field (`core.config_schema.config_field`)."""

    prefix: ClassVar[str] = ""  # before the names of the keys on a command line

    def check(self) -> None:
        """Compare every setting with its type and its bounds.

        Raises:
            InputError: a setting is of another type, or out of its bounds.
        """
        check(self, self.prefix)
