// A machine report as people and programs read it.
#ifndef WEFT_TOOLS_DOCTOR_MACHINE_TEXT_H_
#define WEFT_TOOLS_DOCTOR_MACHINE_TEXT_H_

#include <string>

#include "tools/doctor/machine_report.h"

namespace weft {

// A paragraph for each part, then the problems by number. Ends with a line end.
std::string MachineText(const MachineReport& report);

// The same as JSON, with bytes and kHz as numbers. Ends with a line end.
std::string MachineJson(const MachineReport& report);

}  // namespace weft

#endif  // WEFT_TOOLS_DOCTOR_MACHINE_TEXT_H_
