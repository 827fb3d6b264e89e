# SPDX-License-Identifier: Apache-2.0
# cmake -DIN=file -DOUT=header -DNAME=variable -P EmbedText.cmake: a C++ header with the file's text.
file(READ ${IN} text)
file(WRITE ${OUT} "#pragma once\ninline constexpr char ${NAME}[] = R\"EMBED(${text})EMBED\";\n")
