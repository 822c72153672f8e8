/* host_links.h: TCP connections between the ranks of groups that are not inside one host, which
 * carry bytes and know nothing of what these mean. For ranks that compute on CPUs: tests, and small
 * clusters. GPUs use NCCL.
 *
 * A link is a connection to one other member of one group. Both ends hand it the same pieces in the
 * same order, so a piece has no head. Nothing moves by itself: fm_host_links_move sends and
 * receives what the connections take now, on all links at once. So a rank that waits for one link
 * does not hold up another. */
#ifndef FM_TRAINER_HOST_LINKS_H
#define FM_TRAINER_HOST_LINKS_H

#include "trainer/dist/host_connect.h"

#include <stdbool.h>

enum { FM_HOST_LINKS_PIECES = 64 }; /* of a link and direction, given and not moved, at most */

typedef struct fm_host_links fm_host_links;

/* Collective over the meeting: opens the links of this rank, [n] or none. Link i leads to ends[i].
 * The errors of fm_host_connect; one rank may fail alone, and the caller tells the others. */
FM_MUST_USE fm_status fm_host_links_open(fm_meeting *meeting, const fm_topology *topology,
                                         const fm_host_end *ends, int32_t n, double seconds,
                                         fm_host_links **ret_links, fm_error *reterr);
/* NULL is allowed. */
void fm_host_links_close(fm_host_links *links);

/* Ends all connections. From then on all pieces have moved, and no memory of them is used. */
void fm_host_links_cut(fm_host_links *links);

/* Queues a piece of `bytes` > 0 bytes on link `number`: bytes to send, or room for bytes to
 * receive. The caller owns the memory, and neither changes nor frees it until the piece has moved.
 * At most FM_HOST_LINKS_PIECES pieces of a link wait in one direction. Returns the piece's number
 * among those of this link and direction, from 1. */
uint32_t fm_host_links_send(fm_host_links *links, int32_t number, const void *piece, size_t bytes);
uint32_t fm_host_links_receive(fm_host_links *links, int32_t number, void *piece, size_t bytes);

/* Moves what can be moved now; where nothing can, waits up to `wait_ms` until something can.
 * Returns -1, or a link that has ended although it has something to move. */
int32_t fm_host_links_move(fm_host_links *links, int wait_ms);

/* Whether the piece with this number has been handed to the network, or has come. */
bool fm_host_links_is_sent(const fm_host_links *links, int32_t number, uint32_t piece);
bool fm_host_links_has_come(const fm_host_links *links, int32_t number, uint32_t piece);

#endif
