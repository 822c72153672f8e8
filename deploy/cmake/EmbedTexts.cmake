# cmake -DOUT=presets.c -DHEADER=trainer/app/settings/presets.h -DTYPE=fm_preset -DNAME=fm_presets -P EmbedTexts.cmake FILE...:
# the files as C strings under their names without endings, in the order given; the last row is zeros. HEADER declares
# "const TYPE NAME[]", rows of a name and a text.
set(rows "")
set(is_file OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 0 ${last})
    if(NOT is_file)
        if(CMAKE_ARGV${i} MATCHES "EmbedTexts.cmake$")
            set(is_file ON)
        endif()
        continue()
    endif()
    get_filename_component(name ${CMAKE_ARGV${i}} NAME_WLE)
    file(READ ${CMAKE_ARGV${i}} text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
    string(APPEND rows "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
file(WRITE ${OUT} "/* Made by EmbedTexts.cmake. */\n#include \"${HEADER}\"\n\n"
    "const ${TYPE} ${NAME}[] = {\n${rows}    {0, 0},\n};\n")
