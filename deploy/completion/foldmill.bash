# Completion of foldmill for bash. The programs themselves list their commands and options.
_foldmill() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} value
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ] || { [ "$COMP_CWORD" = 2 ] && [ "$command" = help ]; }; then
        mapfile -t COMPREPLY < <(compgen -W "$(foldmill --help=words 2>/dev/null | cut -f 1) help --help --version" -- "$word")
        return
    fi
    case $before in
    --*)
        value=$(foldmill "$command" --help=words 2>/dev/null | awk -F '\t' -v name="$before" '$1 == name { print $2 }')
        case $value in
        '') ;; # a flag: what follows is another word
        DIR) compopt -o dirnames -o filenames && return ;;
        *) compopt -o default && return ;;
        esac
        ;;
    esac
    case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(foldmill "$command" --help=words 2>/dev/null | cut -f 1)" -- "$word") ;;
    *) compopt -o default ;;
    esac
}
complete -F _foldmill foldmill
