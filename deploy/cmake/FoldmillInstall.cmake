# `cmake --install`: programs, manual pages, completion for shells, systemd units and documentation, below any prefix.
# Manual pages are made by the installed programs themselves (--help=man), so they agree with --help.
include(GNUInstallDirs)
install(TARGETS foldmill foldmill-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(completion ${CMAKE_SOURCE_DIR}/deploy/completion)
install(FILES ${completion}/foldmill.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME foldmill)
install(FILES ${completion}/_foldmill DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${completion}/foldmill.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(units ${CMAKE_SOURCE_DIR}/deploy/systemd)
install(FILES ${units}/foldmill-serve.socket ${units}/foldmill-serve-http.socket DESTINATION lib/systemd/system)
install(FILES ${units}/foldmill.sysusers.conf DESTINATION lib/sysusers.d RENAME foldmill.conf)
install(FILES ${units}/serve.env DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
# The service names its program by path, which is that of the prefix.
install(CODE "
    file(READ \"${units}/foldmill-serve.service\" unit)
    string(REPLACE \"/usr/local/bin/foldmill\" \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/foldmill\" unit \"\${unit}\")
    file(WRITE \"${CMAKE_BINARY_DIR}/foldmill-serve.service\" \"\${unit}\")
    file(INSTALL \"${CMAKE_BINARY_DIR}/foldmill-serve.service\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")
")
install(CODE "
    set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/foldmill\")
    set(man \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")
    set(made \"${CMAKE_BINARY_DIR}/man1\")
    file(REMOVE_RECURSE \"\${made}\")
    file(MAKE_DIRECTORY \"\${made}\")
    execute_process(COMMAND \"\${bin}\" --help=man OUTPUT_FILE \"\${made}/foldmill.1\" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND \"\${bin}\" --help=words OUTPUT_VARIABLE words COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL \"[^\\n]+\" rows \"\${words}\")
    foreach(row IN LISTS rows)
        string(REGEX REPLACE \"\\t.*\" \"\" command \"\${row}\")
        execute_process(COMMAND \"\${bin}\" \${command} --help=man
            OUTPUT_FILE \"\${made}/foldmill-\${command}.1\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    file(GLOB pages \"\${made}/*.1\")
    file(INSTALL \${pages} DESTINATION \"\${man}\")
")
