// CSV files: columns of numbers, and columns of text as class numbers.
#ifndef WEFT_TRAINING_DATA_CSV_TABLE_H_
#define WEFT_TRAINING_DATA_CSV_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "training/data/data_column.h"
#include "training/data/data_spec.h"

namespace weft {

// The rows of delimited text, by RFC 4180: a quoted cell may hold delimiters, line ends and doubled
// quotes; rows end in LF or CRLF. A UTF-8 byte order mark and empty lines are skipped. Borrows.
class CsvScanner {
 public:
  CsvScanner(std::string_view text, char delimiter, std::string name);

  // The next row's cells; false at the end. InvalidArgument names the line.
  absl::StatusOr<bool> Next(std::vector<std::string>& cells);
  // Where the row last read begins, from 1.
  int64_t line() const { return row_line_; }

 private:
  // One cell, and the delimiter or line end after it; `last`: it ended its row.
  absl::Status ReadCell(std::string& cell, bool& last);
  absl::Status ReadQuoted(std::string& cell);

  std::string_view rest_;
  const char delimiter_;
  const std::string name_;
  int64_t line_ = 1;
  int64_t row_line_ = 1;
};

// How a CSV file is read.
struct CsvOptions {
  char delimiter = 0;                // 0: the first of ',', ';' and tab that the first line has
  std::optional<bool> has_header;    // nothing: when no cell of the first row is a number
  std::vector<std::string> classes;  // the numbers of texts; empty: as found, sorted
  bool is_labels = false;            // without `columns`, the last one is meant
  Padding padding;                   // not empty: the cells of the one column are lists of numbers
};

// `columns`: names of the header, numbers from 0, or ranges of these ("0-3,7"), separated by
// commas. A single name or number gives scalars, otherwise a sample is a row of the columns named:
// int64 where all cells are integers, else float64. A single column of text becomes class numbers.
// With padding, a sample is the numbers in a cell of the single column, between spaces, commas,
// semicolons and brackets ("[7, 12, 3]"). Errors name line and column.
absl::StatusOr<std::unique_ptr<DataColumn>> ReadCsv(std::string_view text, const std::string& name,
                                                    const std::string& columns,
                                                    const CsvOptions& options);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_CSV_TABLE_H_
