def slugify(title: str) -> str:
    return title.lower().replace(" ", "-")
