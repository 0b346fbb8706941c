# Start-up file of `haienv shell` in bash: what the account's own sets must not come before the environment.
if [ -f ~/.bashrc ]; then . ~/.bashrc; fi
eval "$_HAIENV_ENTER"
unset _HAIENV_ENTER
