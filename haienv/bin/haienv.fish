# fish: source (command -s haienv.fish) NAME; or `haienv init fish | source` once, then `source haienv NAME`
set -l _haienv_python (path dirname (path resolve (status filename)))/python
set -l _haienv_lines ($_haienv_python -I -m haienv.activate fish $argv)
and string join \n -- $_haienv_lines | source
