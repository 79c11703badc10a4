// Measures the time until a thread that sleeps on an atomic runs.
#ifndef WEFT_TRAINING_CALIBRATION_WAKE_PROBE_H_
#define WEFT_TRAINING_CALIBRATION_WAKE_PROBE_H_

#include "platform/clock.h"

namespace weft {

// On this machine: the median of some dozens of hand-overs between two threads, in the way the
// executor's communication thread is woken. Seconds.
double ProbeWakeSeconds(Clock& clock);

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_WAKE_PROBE_H_
