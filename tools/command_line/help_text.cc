#include "tools/command_line/help_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

constexpr size_t kLineWidth = 100;
constexpr size_t kWidestLabel = 30;

// "-o, --output-dir DIR", "MODEL.onnx".
std::string Label(const CLI::Option& option) {
  std::string label;
  if (option.get_positional()) {
    label = option.get_type_name();
  } else {
    for (const std::string& name : option.get_snames()) {
      absl::StrAppend(&label, label.empty() ? "" : ", ", "-", name);
    }
    for (const std::string& name : option.get_lnames()) {
      absl::StrAppend(&label, label.empty() ? "" : ", ", "--", name);
    }
    if (!option.get_type_name().empty()) absl::StrAppend(&label, " ", option.get_type_name());
  }
  return label;
}

// The label and, beside it in lines of their own width, the description.
std::string Entry(const std::string& label, const std::string& description, size_t column) {
  std::string text = "  " + label;
  size_t width = text.size();
  if (width + 2 > column) {
    text += "\n";
    width = 0;
  }
  text += std::string(column - width, ' ');
  width = column;
  for (const auto word : absl::StrSplit(description, ' ')) {
    if (width > column) {
      if (width + 1 + word.size() > kLineWidth) {
        text += "\n" + std::string(column, ' ');
        width = column;
      } else {
        text += " ";
        ++width;
      }
    }
    absl::StrAppend(&text, word);
    width += word.size();
  }
  return text + "\n";
}

std::string Options(const CLI::App& app, const std::string& group) {
  size_t column = 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() != group) continue;
    column = std::max(column, std::min(Label(*option).size(), kWidestLabel) + 4);
  }
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() != group) continue;
    text += Entry(Label(*option), option->get_description(), column);
  }
  return text;
}

std::string Head(const Command& command) {
  return absl::StrCat(command.summary(), ".\n\nusage: graph_runner ", command.name(), " ",
                      command.usage(), "\n\n");
}

std::string Examples(const Command& command) {
  std::string text = "examples:\n";
  for (const std::string& example : command.examples()) absl::StrAppend(&text, "  ", example, "\n");
  return text;
}

}  // namespace

std::string OverviewHelp(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string text =
      "Trains an ONNX model on one or many machines, and writes the trained model as ONNX.\n\n"
      "usage: graph_runner COMMAND ...\n\n";
  for (const auto& command : commands) text += Entry(command->name(), command->summary(), 15);
  text += "\nto begin: graph_runner example lenet -o lenet.onnx, or graph_runner COMMAND --help\n";
  return text;
}

std::string ShortHelp(const Command& command, const CLI::App& app) {
  return absl::StrCat(Head(command), Options(app, kMainOptions), "\n", Examples(command),
                      "\nevery option: graph_runner ", command.name(), " --help=all\n");
}

std::string FullHelp(const Command& command, const CLI::App& app) {
  std::string text = Head(command);
  for (const std::string& group : app.get_groups()) {
    const std::string options = Options(app, group);
    if (!options.empty()) absl::StrAppend(&text, group, ":\n", options, "\n");
  }
  return text + Examples(command);
}

}  // namespace weft
