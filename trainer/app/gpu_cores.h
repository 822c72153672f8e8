/* gpu_cores.h: keeps a process near the GPU that it uses: on the cores, and in the memory, of the
 * processor that the GPU is connected to. */
#ifndef FM_TRAINER_GPU_CORES_H
#define FM_TRAINER_GPU_CORES_H

#include <sched.h>
#include <stdbool.h>

/* Binds the calling thread, and those that it makes from now on, to the cores near the device at
 * the PCI address `bus`, as far as they are allowed now. New memory then comes from their node
 * where there is some. `devices` is the system's folder of PCI devices, FM_PCI_DEVICES. Returns how
 * many cores that are; 0 where the system does not say, or allows none of them: nothing changes. */
int fm_gpu_cores_bind(const char *devices, const char *bus);

#define FM_PCI_DEVICES "/sys/bus/pci/devices"

/* Reads a list of cores as Linux writes it, "0-3,8,10-11". False for another form. */
bool fm_gpu_cores_parse(const char *text, cpu_set_t *ret_cores);

#endif
