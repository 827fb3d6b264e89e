/* SPDX-License-Identifier: Apache-2.0 */
#include "libcwclock/cwclock.h"

const char* cw_clock_strerror(int error) {
  switch (error) {
    case 0:
      return "no error";
    case CW_CLOCK_ENOPAGE:
      return "there is no clock page: start cwagentd on this host; in a container, mount the folder "
             "/run/cwfabric/INSTANCE "
             "(the folder, not the file); for another instance set CWFABRIC_CLOCK";
    case CW_CLOCK_EPERMISSION:
      return "the clock page may not be read by this user: join the group that the agent gives it to (clock.group in "
             "its "
             "configuration)";
    case CW_CLOCK_EUNSAFE:
      return "the clock page can be written by others than its owner and is not trusted: remove it and restart "
             "cwagentd";
    case CW_CLOCK_EFORMAT:
      return "this file is no whole clock page: check the path, or remove the file and restart cwagentd";
    case CW_CLOCK_EVERSION:
      return "the clock page has a layout that this libcwclock does not know: install the libcwclock of the agent's "
             "version";
    case CW_CLOCK_EBOOT:
      return "the clock page was written before this machine was started: start cwagentd, and keep its run folder on a "
             "tmpfs";
    case CW_CLOCK_ETIMENS:
      return "this process is in another time namespace than the agent, where the kernel's clocks differ: start it "
             "without one";
    case CW_CLOCK_ESTALE:
      return "the agent has not updated the clock page for too long: see `systemctl status cwagentd`";
    case CW_CLOCK_EUNKNOWN:
      return "this host's clock is not synchronised with the fleet (yet): see `cwctl clock sources`";
    case CW_CLOCK_EDISRUPTED:
      return "this host was suspended, or its virtual machine was moved, and fleet time has not been found again: try "
             "again "
             "in some seconds";
    case CW_CLOCK_EBUSY:
      return "the clock page changed during every attempt to read it: something other than the agent writes to it";
    case CW_CLOCK_ERANGE:
      return "the timestamp can't be converted: it is older than the fleet clock's present epoch, or its clock was set "
             "since";
    case CW_CLOCK_ECLOCK:
      return "timestamps of this clock can't be converted: use CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME or "
             "CLOCK_REALTIME";
    case CW_CLOCK_ENOTAI:
      return "no host of the fleet has an anchor to TAI: use fleet time, or configure an anchor";
    case CW_CLOCK_EINVALID:
      return "an argument is NULL that must not be";
    case CW_CLOCK_ESYSTEM:
      return "a system call failed while the clock page was opened: errno says which way";
    case CW_CLOCK_ETIMELINE:
      return "the two times are of different timelines, or their timeline is not told, and can't be compared: read "
             "both "
             "hosts again when `cwctl clock` shows one timeline";
    default:
      return "unknown error of libcwclock";
  }
}

const char* cw_clock_state_name(int state) {
  switch (state) {
    case CW_CLOCK_UNKNOWN:
      return "unknown";
    case CW_CLOCK_SYNCHRONISED:
      return "synchronised";
    case CW_CLOCK_FREE_RUNNING:
      return "free-running";
    case CW_CLOCK_DISRUPTED:
      return "disrupted";
    default:
      return "invalid";
  }
}
