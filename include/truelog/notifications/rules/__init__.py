"""The kinds of notification rules: about matches and hits, or about rows; and how a declaration becomes a rule."""
