# fish: source (command -s haienv.fish) NAME; or `haienv init fish | source` once, then `source haienv NAME`
# The cached text, valid if nothing has changed (haienv/activate/activation_cache.py). The number is its version.
set -l _haienv_entered
set -l _haienv_kept
if string match -qr '^[A-Za-z0-9][][A-Za-z0-9._-]*$' -- "$argv"
    set -l _haienv_cache /dev/null
    test -n "$HOME"; and set _haienv_cache $HOME/.cache
    string match -q '/*' -- "$XDG_CACHE_HOME"; and set _haienv_cache $XDG_CACHE_HOME
    set _haienv_kept $_haienv_cache/haienv/enter-3-fish/$argv[1]
    if test -O (path dirname $_haienv_kept); and test -f $_haienv_kept; and test -O $_haienv_kept
        source $_haienv_kept
    end
end
if test -z "$_haienv_entered"
    set -l _haienv_python (path dirname (path resolve (status filename)))/python
    set -l _haienv_lines ($_haienv_python -I -m haienv.activate --keep "$_haienv_kept" fish $argv)
    and string join \n -- $_haienv_lines | source
end
