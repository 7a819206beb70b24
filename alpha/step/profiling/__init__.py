"""`alpha.profile`: where the time of a step goes, by layer, by operator and by kernel."""
