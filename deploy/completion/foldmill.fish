# Completion of foldmill for fish. The programs themselves list their commands and options.
function __foldmill_options
    set -l words (commandline -opc)
    test (count $words) -ge 2; or return
    foldmill $words[2] --help=words 2>/dev/null | while read -l -d \t name value help
        printf '%s\t%s\n' $name $help
    end
end
complete -c foldmill -n 'test (count (commandline -opc)) -eq 1' -f -a '(foldmill --help=words 2>/dev/null | string replace -r "\t\t" "\t")'
complete -c foldmill -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__foldmill_options)'
