/* cores.h: decides which cores of its host a rank runs on, and from which node its memory comes. */
#ifndef FM_TRAINER_CORES_H
#define FM_TRAINER_CORES_H

#include "proto/base/status.h"

#include <sched.h>
#include <stdbool.h>

#define FM_PCI_DEVICES "/sys/bus/pci/devices"

/* Binds the calling thread, and the threads that it creates later, to those cores near the device
 * at the PCI address `bus` that it may use now. New memory then comes from their NUMA node while
 * the node has some free. `devices` is the system's folder of PCI devices, FM_PCI_DEVICES. *ret_n
 * is the number of these cores. It is 0, and nothing has changed, if the system does not name the
 * cores or allows none of them. Fails with FM_ERR_IO if the system's files cannot be read or it
 * refuses the cores or the node, FM_ERR_FORMAT if the files have another form. After an error the
 * cores may be bound. */
FM_MUST_USE fm_status fm_cores_bind_near(const char *devices, const char *bus, int *ret_n,
                                         fm_error *reterr);

/* Reads a list of cores as Linux writes it, "0-3,8,10-11". False for another form. */
bool fm_cores_parse(const char *text, cpu_set_t *ret_cores);

/* Finds the cores of rank `number` of n that compute on CPUs: an equal part of `all`, with no core
 * in two parts. Returns false if there are fewer cores than ranks. Each rank may then use all of
 * them, since the scheduler divides the time of the cores better than a fixed choice would. */
bool fm_cores_divide(const cpu_set_t *all, int32_t number, int32_t n, cpu_set_t *ret_part);

#endif
