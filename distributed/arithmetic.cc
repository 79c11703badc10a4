#include "distributed/arithmetic.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "platform/cpu_info.h"

namespace weft {
namespace {

// "" where the system does not say.
std::string ProcessorModel(FileSystem& files) {
  const absl::StatusOr<std::string> text = files.ReadFile("/proc/cpuinfo");
  if (!text.ok()) return "";
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const size_t colon = line.find(':');
    if (!absl::StartsWith(line, "model name") || colon == absl::string_view::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

}  // namespace

std::string ArithmeticOf(const Device& device, const WorkerCard& card, int threads,
                         FileSystem& files) {
  const std::string& name = device.info().name;
  std::string text = name.substr(0, name.find(':'));
  if (!card.text.empty()) absl::StrAppend(&text, " ", card.text, ", driver ", card.driver, ",");
  absl::StrAppend(&text, " ", std::string(InstructionSetName(EffectiveInstructionSet())), ", ",
                  threads, " threads, ", ProcessorModel(files));
  return text;
}

}  // namespace weft
