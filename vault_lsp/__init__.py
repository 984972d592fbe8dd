"""vault-lsp: language server, search engine and keeper for folders of Markdown notes."""

__version__ = "0.1.0"
