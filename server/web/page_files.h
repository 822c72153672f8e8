/* page_files.h: the files of the page, which the build puts into the program. */
#ifndef FM_SERVER_WEB_PAGE_FILES_H
#define FM_SERVER_WEB_PAGE_FILES_H

typedef struct fm_page_file {
    const char *name; /* the file's name without its ending */
    const char *text;
} fm_page_file;

/* The last row is zeros. */
extern const fm_page_file fm_page_files[];

#endif
