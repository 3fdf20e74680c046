"""`dray completion`: the lines that teach a shell to complete `dray`."""

import click
from click.shell_completion import get_completion_class

PROGRAM = "dray"
# What click looks for in the environment when the shell asks for completions of this program.
VARIABLE = "_DRAY_COMPLETE"


@click.command(epilog='Example: eval "$(dray completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the lines that complete commands and options in your shell.

    \b
    bash  eval "$(dray completion bash)"      in ~/.bashrc
    zsh   eval "$(dray completion zsh)"       in ~/.zshrc, after compinit
    fish  dray completion fish | source       in ~/.config/fish/config.fish
    """
    from dray.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, PROGRAM, VARIABLE)
    # Not `source()`: for bash that starts a bash to ask for its version, which is the user's own affair.
    click.echo(script.source_template % script.source_vars())
