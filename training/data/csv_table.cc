#include "training/data/csv_table.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"
#include "training/data/ragged_column.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kMaxClasses = 65536;
constexpr size_t kColumnsShown = 20;
constexpr size_t kCellShown = 40;

std::string Shown(const std::string& cell) {
  return absl::StrCat("'", absl::Utf8SafeCEscape(cell.substr(0, kCellShown)),
                      cell.size() > kCellShown ? "..." : "", "'");
}

std::string_view Stripped(const std::string& cell) {
  std::string_view text = cell;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <typename Number>
bool ParseCell(const std::string& cell, Number& number) {
  const std::string_view text = Stripped(cell);
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return !text.empty() && error == std::errc() && at == end;
}

bool IsNumber(const std::string& cell) {
  double number = 0;
  return ParseCell(cell, number);
}

char GuessDelimiter(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  for (const char delimiter : {',', ';', '\t'}) {
    if (line.find(delimiter) != std::string_view::npos) return delimiter;
  }
  return ',';
}

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name, const CsvOptions& options)
      : text_(text),
        name_(name),
        options_(options),
        delimiter_(options.delimiter != 0 ? options.delimiter : GuessDelimiter(text)) {}

  absl::StatusOr<std::unique_ptr<DataColumn>> Read(const std::string& columns) {
    WEFT_RETURN_IF_ERROR(ReadHead());
    WEFT_RETURN_IF_ERROR(SelectColumns(columns));
    if (!options_.padding.empty()) return ReadLists();
    if (selected_.size() == 1 && !IsNumber(first_row_[selected_[0]])) return ReadClasses();
    return ReadNumbers();
  }

 private:
  // The header, if there is one, and the first row after it.
  absl::Status ReadHead() {
    CsvScanner scanner(text_, delimiter_, name_);
    WEFT_ASSIGN_OR_RETURN(const bool any, scanner.Next(first_row_));
    if (!any) return UnreadableData(name_, "has no rows");
    has_header_ =
        options_.has_header.value_or(std::none_of(first_row_.begin(), first_row_.end(), IsNumber));
    if (!has_header_) {
      for (size_t i = 0; i < first_row_.size(); ++i) header_.push_back(absl::StrCat(i));
      return absl::OkStatus();
    }
    header_ = first_row_;
    WEFT_ASSIGN_OR_RETURN(const bool more, scanner.Next(first_row_));
    if (!more) {
      return UnreadableData(
          name_, absl::StrCat("has a header (", absl::StrJoin(header_, ", "), ") and no rows"));
    }
    return CheckWidth(first_row_, scanner.line());
  }

  absl::Status CheckWidth(const std::vector<std::string>& cells, int64_t line) const {
    if (cells.size() == header_.size()) return absl::OkStatus();
    return UnreadableData(name_, absl::StrCat("line ", line, " has ", cells.size(),
                                              " cells, the first ", header_.size()));
  }

  absl::Status UnknownColumn(const std::string& word) const {
    std::vector<std::string> names = header_;
    if (names.size() > kColumnsShown) names.resize(kColumnsShown);
    return UnreadableData(name_,
                          absl::StrCat("there is no column '", word, "' among its ", header_.size(),
                                       has_header_ ? absl::StrCat(": ", absl::StrJoin(names, ", "))
                                                   : ", which have no names (0 is the first)"));
  }

  // A column's number by name or number.
  std::optional<size_t> FindColumn(const std::string& word) const {
    const auto named = std::find(header_.begin(), header_.end(), word);
    if (named != header_.end()) return static_cast<size_t>(named - header_.begin());
    size_t number = 0;
    if (!absl::SimpleAtoi(word, &number) || number >= header_.size()) return std::nullopt;
    return number;
  }

  absl::Status SelectColumns(const std::string& columns) {
    if (columns.empty() && options_.is_labels) {
      selected_ = {header_.size() - 1};
      is_scalar_ = true;
      return absl::OkStatus();
    }
    if (columns.empty()) {
      return UnreadableData(
          name_, absl::StrCat("which of its ", header_.size(), " columns? name them, as FILE:0-3",
                              " or FILE:", header_.front()));
    }
    // A name may hold a comma or a dash.
    if (const auto column = FindColumn(columns)) {
      selected_ = {*column};
      is_scalar_ = true;
      return absl::OkStatus();
    }
    for (const auto& part : std::vector<std::string>(absl::StrSplit(columns, ','))) {
      if (const auto column = FindColumn(part)) {
        selected_.push_back(*column);
        continue;
      }
      const std::pair<std::string, std::string> range =
          absl::StrSplit(part, absl::MaxSplits('-', 1));
      const auto first = FindColumn(range.first), last = FindColumn(range.second);
      if (!first || !last || *last < *first) return UnknownColumn(part);
      for (size_t i = *first; i <= *last; ++i) selected_.push_back(i);
    }
    if (selected_.size() > header_.size()) {
      return UnreadableData(name_, absl::StrCat("'", columns, "' names a column twice"));
    }
    return absl::OkStatus();
  }

  // Calls `take(cells, line)` for each row of data.
  template <typename Take>
  absl::Status ForEachRow(const Take& take) {
    CsvScanner scanner(text_, delimiter_, name_);
    std::vector<std::string> cells;
    bool is_header = has_header_;
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const bool more, scanner.Next(cells));
      if (!more) return absl::OkStatus();
      if (std::exchange(is_header, false)) continue;
      WEFT_RETURN_IF_ERROR(CheckWidth(cells, scanner.line()));
      WEFT_RETURN_IF_ERROR(take(cells, scanner.line()));
      ++rows_;
    }
  }

  absl::Status BadCell(const std::string& cell, size_t column, int64_t line,
                       const std::string& expected) const {
    return UnreadableData(name_, absl::StrCat("line ", line, ", column '", header_[column],
                                              "': ", cell.empty() ? "an empty cell" : Shown(cell),
                                              ", expected ", expected));
  }

  absl::StatusOr<std::unique_ptr<DataColumn>> ReadNumbers() {
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    bool all_integers = true;
    WEFT_RETURN_IF_ERROR(ForEachRow([&](const std::vector<std::string>& cells, int64_t line) {
      for (const size_t column : selected_) {
        if (!ParseCell(cells[column], numbers.emplace_back())) {
          return BadCell(cells[column], column, line,
                         selected_.size() > 1 ? "a number (text is numbered in a column of its own)"
                                              : "a number, as in the first row");
        }
        if (all_integers && !ParseCell(cells[column], integers.emplace_back())) {
          all_integers = false;
          std::vector<int64_t>().swap(integers);
        }
      }
      return absl::OkStatus();
    }));
    Shape shape({rows_});
    if (!is_scalar_) shape.AddDim(static_cast<int64_t>(selected_.size()));
    ColumnInfo info;
    info.source = name_;
    info.is_amount = false;
    if (all_integers) return NewTensorColumn(info, Tensor::Of<int64_t>(shape, integers));
    return NewTensorColumn(info, Tensor::Of<double>(shape, numbers));
  }

  // The numbers of a cell, after those of the cells before; false: there is something else.
  static bool ParseList(const std::string& cell, std::vector<double>& numbers,
                        std::vector<int64_t>& integers, bool& all_integers) {
    for (const absl::string_view word :
         absl::StrSplit(cell, absl::ByAnyChar(" ,;\t\r\n[]"), absl::SkipEmpty())) {
      const std::string text(word);
      if (!ParseCell(text, numbers.emplace_back())) return false;
      if (all_integers && !ParseCell(text, integers.emplace_back())) all_integers = false;
    }
    return true;
  }

  absl::StatusOr<std::unique_ptr<DataColumn>> ReadLists() {
    if (selected_.size() != 1) {
      return UnreadableData(
          name_, absl::StrCat("--pad is for one column, whose cells are lists of numbers; ",
                              selected_.size(), " are named"));
    }
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    std::vector<int64_t> ends;
    bool all_integers = true;
    WEFT_RETURN_IF_ERROR(ForEachRow([&](const std::vector<std::string>& cells, int64_t line) {
      const std::string& cell = cells[selected_[0]];
      if (!ParseList(cell, numbers, integers, all_integers)) {
        return BadCell(cell, selected_[0], line, "a list of numbers, such as 7 12 3");
      }
      ends.push_back(static_cast<int64_t>(numbers.size()));
      return absl::OkStatus();
    }));
    ColumnInfo info;
    info.source = name_;
    info.is_amount = false;
    const auto count = static_cast<int64_t>(numbers.size());
    const Tensor values = all_integers ? Tensor::Of<int64_t>({count}, integers)
                                       : Tensor::Of<double>({count}, numbers);
    return NewRaggedColumn(std::move(info), ListsOfEnds(values, ends), options_.padding);
  }

  absl::StatusOr<std::unique_ptr<DataColumn>> ReadClasses() {
    const size_t column = selected_[0];
    std::set<std::string> found(options_.classes.begin(), options_.classes.end());
    if (options_.classes.empty()) {
      WEFT_RETURN_IF_ERROR(ForEachRow([&](const std::vector<std::string>& cells, int64_t line) {
        found.insert(cells[column]);
        if (!cells[column].empty() && found.size() <= kMaxClasses) return absl::OkStatus();
        return BadCell(cells[column], column, line,
                       absl::StrCat("a class, of at most ", kMaxClasses));
      }));
      rows_ = 0;
    }
    ColumnInfo info;
    info.source = name_;
    info.is_amount = false;
    info.class_names = options_.classes;
    if (info.class_names.empty()) info.class_names.assign(found.begin(), found.end());
    std::map<std::string, int64_t> numbers;
    for (const std::string& text : info.class_names) {
      numbers.emplace(text, static_cast<int64_t>(numbers.size()));
    }
    std::vector<int64_t> labels;
    WEFT_RETURN_IF_ERROR(ForEachRow([&](const std::vector<std::string>& cells, int64_t line) {
      const auto number = numbers.find(cells[column]);
      if (number == numbers.end()) {
        return BadCell(cells[column], column, line,
                       absl::StrCat("one of the ", numbers.size(), " classes"));
      }
      labels.push_back(number->second);
      return absl::OkStatus();
    }));
    Shape shape({rows_});
    if (!is_scalar_) shape.AddDim(1);
    return NewTensorColumn(std::move(info), Tensor::Of<int64_t>(shape, labels));
  }

  const std::string_view text_;
  const std::string name_;
  const CsvOptions& options_;
  const char delimiter_;
  bool has_header_ = false;
  std::vector<std::string> header_;  // names, or numbers where there are none
  std::vector<std::string> first_row_;
  std::vector<size_t> selected_;
  bool is_scalar_ = false;
  int64_t rows_ = 0;
};

}  // namespace

CsvScanner::CsvScanner(std::string_view text, char delimiter, std::string name)
    : rest_(text), delimiter_(delimiter), name_(std::move(name)) {
  if (rest_.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    rest_.remove_prefix(kByteOrderMark.size());
  }
}

absl::StatusOr<bool> CsvScanner::Next(std::vector<std::string>& cells) {
  while (!rest_.empty() && (rest_.front() == '\n' || rest_.front() == '\r')) {
    if (rest_.front() == '\n') ++line_;
    rest_.remove_prefix(1);
  }
  row_line_ = line_;
  if (rest_.empty()) return false;
  size_t count = 0;
  for (bool last = false; !last; ++count) {
    if (cells.size() == count) cells.emplace_back();
    WEFT_RETURN_IF_ERROR(ReadCell(cells[count], last));
  }
  cells.resize(count);
  return true;
}

absl::Status CsvScanner::ReadCell(std::string& cell, bool& last) {
  cell.clear();
  if (!rest_.empty() && rest_.front() == '"') {
    WEFT_RETURN_IF_ERROR(ReadQuoted(cell));
  } else {
    const char ends[] = {delimiter_, '\n'};
    size_t end = rest_.find_first_of(std::string_view(ends, 2));
    end = std::min(end, rest_.size());
    cell.assign(rest_.substr(0, end));
    rest_.remove_prefix(end);
    const bool at_line_end = rest_.empty() || rest_.front() == '\n';
    if (at_line_end && !cell.empty() && cell.back() == '\r') cell.pop_back();
  }
  if (rest_.substr(0, 2) == "\r\n") rest_.remove_prefix(1);
  last = rest_.empty() || rest_.front() == '\n';
  if (!last && rest_.front() != delimiter_) {
    return UnreadableData(name_, absl::StrCat("line ", line_, ": text after a closing quote"));
  }
  if (!rest_.empty()) {
    if (last) ++line_;
    rest_.remove_prefix(1);
  }
  return absl::OkStatus();
}

absl::Status CsvScanner::ReadQuoted(std::string& cell) {
  const int64_t opened = line_;
  rest_.remove_prefix(1);
  while (true) {
    const size_t end = rest_.find('"');
    if (end == std::string_view::npos) {
      return UnreadableData(name_, absl::StrCat("line ", opened, ": a quote that is never closed"));
    }
    const std::string_view part = rest_.substr(0, end);
    line_ += std::count(part.begin(), part.end(), '\n');
    cell.append(part);
    rest_.remove_prefix(end + 1);
    if (rest_.empty() || rest_.front() != '"') return absl::OkStatus();
    cell.push_back('"');
    rest_.remove_prefix(1);
  }
}

absl::StatusOr<std::unique_ptr<DataColumn>> ReadCsv(std::string_view text, const std::string& name,
                                                    const std::string& columns,
                                                    const CsvOptions& options) {
  return CsvReader(text, name, options).Read(columns);
}

}  // namespace weft
