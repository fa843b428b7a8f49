"""Files from the Hugging Face hub: fetched whole, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path


class HubError(RuntimeError):
    """A file that could not be fetched; the message gives the reason."""


def fetch(repo: str, filename: str, revision: str, *, repo_type: str = "model") -> Path:
    """Fetch a file of the hub, or find it in the hub's cache.

    Args:
        repo: owner and name, such as "facebook/dinov2-small".
        filename: its path in the repository.
        revision: the commit, as its full hash: what it names never changes.
        repo_type: "model" or "dataset".

    Returns:
        Where the file is now.

    Raises:
        HubError: whatever the reason, from a missing package to a full disk.
    """
    try:
        from huggingface_hub import hf_hub_download

        return Path(
            hf_hub_download(repo, filename, repo_type=repo_type, revision=revision)
        )
    except Exception as error:
        # The client says that it found no file; the cause says why.
        causes = [error, *([error.__cause__] if error.__cause__ else [])]
        told = [f"{type(c).__name__}: {' '.join(str(c).split())}" for c in causes]
        raise HubError(
            f"{filename} of {repo} could not be fetched from the Hugging Face hub: "
            f"{', from '.join(told).rstrip('. ')}. Check the connection and try again"
        ) from error


def discard(path: Path) -> str:
    """Delete a bad file from the hub's cache: it would be taken for good next time.

    Returns:
        A sentence that says what has been done, or must be, for an error message.
    """
    blob = path.resolve()  # the cache shows its files through links
    try:
        blob.unlink()
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"It cannot be deleted ({error}): delete {blob} before you try again"
    return "It has been deleted, so that the next try fetches it afresh"
