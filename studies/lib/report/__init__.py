"""The report: one self-contained HTML page of studies and motions.

`collect` finds what studies have left in their folders, `motions` turns runs into what the player
shows, `page` writes the file. The page needs no network: style, scripts, figures and data are in it.
"""
