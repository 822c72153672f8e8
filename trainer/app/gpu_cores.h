/* gpu_cores.h: binds a process to the cores and the memory of the processor that its GPU is
 * connected to. */
#ifndef FM_TRAINER_GPU_CORES_H
#define FM_TRAINER_GPU_CORES_H

#include <sched.h>
#include <stdbool.h>

/* Binds the calling thread, and the threads that it creates later, to those cores near the device
 * at the PCI address `bus` that it may use now. New memory then comes from their NUMA node while
 * the node has some free. `devices` is the system's folder of PCI devices, FM_PCI_DEVICES. Returns
 * the number of these cores. Returns 0 and changes nothing if the system does not name the cores or
 * allows none of them. */
int fm_gpu_cores_bind(const char *devices, const char *bus);

#define FM_PCI_DEVICES "/sys/bus/pci/devices"

/* Reads a list of cores as Linux writes it, "0-3,8,10-11". False for another form. */
bool fm_gpu_cores_parse(const char *text, cpu_set_t *ret_cores);

#endif
