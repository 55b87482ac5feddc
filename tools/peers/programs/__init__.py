"""Programs that other environments' interpreters run by path. Nothing of this project is imported there."""
